"""Jobs on Ray: sessions, fan-out of shards, progress, and the pipelines that jobs/ run."""

"""What several test modules share: small hubs, and an ingest that needs no cluster."""

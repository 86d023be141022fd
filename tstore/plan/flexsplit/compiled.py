"""How the kernels of FlexSplit are compiled."""

from pathlib import Path

from tstore_codecs.kernels.compiled import kernels_in

kernel = kernels_in(Path(__file__).parent)

"""Every number that bounds what a writer produces or a reader allocates."""

from typing import Final

CHUNK_NBYTES: Final = 1 << 20
"""Raw bytes a writer puts in one chunk: its planes fit a core's L2 cache, and the tables and
lane states of a chunk (about 500 bytes) stay below 0.1 % of it."""

MAX_CHUNK_NBYTES: Final = 1 << 20
"""Largest chunk a reader accepts. It bounds scratch memory and the expansion of a blob."""

CHUNK_ALIGNMENT: Final = 8
"""Chunk sizes are multiples of the widest element, so only the last chunk has a partial one."""

MIN_CHUNK_COST: Final = 21
"""Least bytes a chunk takes in a blob: 20 in the chunk table and one of payload."""

MAX_EXPANSION: Final = MAX_CHUNK_NBYTES // MIN_CHUNK_COST
"""A blob of k bytes stands for at most ``k * MAX_EXPANSION`` raw bytes. Long constant tensors come
near it: they are legitimate and cost 22 bytes and up per MiB."""

SMALL_TENSOR_NBYTES: Final = 1 << 16
"""Up to this size the general forms compete with a codec: there, tables may outweigh gains."""

MAX_MODEL_TABLES: Final = 64
"""Most tables a reader accepts in a model: 1 MiB of slots."""

MAX_PARTS: Final = 8
"""Parts of a tensor that are counted side by side."""

MAX_PART_ELEMENTS: Final = 1 << 31
"""Elements of a part: their counts have 32 bits."""

DEFAULT_ROW_LENGTH: Final = 1024
"""Elements per row where no shape is given: even flat tensors have calm and lively stretches."""

MIN_ROW_LENGTH: Final = 128
"""Shorter rows are taken together: the class of a row costs up to four bits."""

MIN_ROWS: Final = 8
"""Rows from which their classes are looked at."""

DELTA_ZSTD_LEVEL: Final = 1
"""Mostly zeros: higher levels gain nothing."""

SMALL_PLANE_NBYTES: Final = 1 << 12
"""Up to this size zstd competes for a plane: there, the states of the rANS lanes can
outweigh what Huffman codes lose (exponents of BF16 weights)."""

MIN_PLANE_GAIN: Final = 1 / 128
"""Share of a plane that coding must save, for elements of one or two bytes. The mantissa of BF16
saves 0.4 % at the price of half the speed of the whole codec."""

MIN_WIDE_PLANE_GAIN: Final = 1 / 512
"""The same for wider elements: the top of an F32 mantissa also saves 0.4 %, as one plane of four."""

MANY_ZEROS: Final = 0.90
"""Share of zero bytes above which a plane is sparse, and zstd competes for what stays dense (ZipNN,
section IV-B)."""

SAMPLED_PLANE_NBYTES: Final = 1 << 16
"""From this size a sample tells whether a plane is noise, or sparse."""

LONG_ZERO_RUN: Final = 0.03
"""Zero run, as a share of the plane, from which zstd competes for it (ZipNN, section IV-B)."""

PLANE_ZSTD_LEVEL: Final = 1
"""Higher levels cost several times the time on byte planes and gain nothing."""

OPAQUE_ZSTD_LEVEL: Final = 3
"""zstd's own default: text and headers profit from longer matches."""

"""Errors at the border of a program: one line on stderr, exit code 2."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

import tstore_codecs
from tstore.errors import TStoreError


@contextmanager
def exit_on_error(console: Console) -> Iterator[None]:
    """End the program with exit code 2 and one clear line when the block fails on purpose.

    Operating system errors (a full disk, no permission) are told the same way; anything else is a
    defect of tstore and keeps its traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.print("interrupted; the same command goes on where this one stopped")
        sys.exit(130)
    except (TStoreError, tstore_codecs.CodecError, OSError) as error:
        line = " ".join(str(error).split())
        console.print(f"error: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except Exception:  # noqa: BLE001  the border of the program: exit code 1 would say "it is in"
        traceback.print_exc()
        sys.exit(2)

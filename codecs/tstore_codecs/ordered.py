"""``fmpp``, ``ulpack`` and ``ulprow``: a tensor against its base, by ordered integers.

Bit patterns become integers in the order of the numbers they stand for; what is coded is their
difference. All three share one stream and differ in the model that they fit:

* ``fmpp`` (FM-Delta, TStore's FM++): sign and bit length, one table for all.
* ``ulpack`` (ULPack): bit length and two bits more, with tables by the exponent of the base.
* ``ulprow``: the same, with tables by the class of the row as well. Rows of a matrix move by
  different amounts, and rows of an embedding that no token touched do not move at all.
"""

from typing import Final

from tstore_codecs import entropy
from tstore_codecs import model as models
from tstore_codecs.base import Mapper
from tstore_codecs.buffers import ByteArray, aligned_words, words_of
from tstore_codecs.dtypes import Dtype
from tstore_codecs.kernels import ordered as kernels
from tstore_codecs.kernels.paths import PATH
from tstore_codecs.kernels.residuals import MSB_SHIFT, ULP_SHIFT
from tstore_codecs.model import ResidualModel
from tstore_codecs.plane import take


class _Ordered:
    """What the three have in common."""

    needs_base: Final = True
    symbol_shift = ULP_SHIFT
    looks_at_rows = False

    def fit(
        self, target: ByteArray, base: ByteArray, dtype: Dtype, row: int, mapper: Mapper
    ) -> ResidualModel:
        """Return tables, and which element takes which."""
        row_length = row if self.looks_at_rows else None
        return models.fit(target, base, dtype, self.symbol_shift, row_length, mapper)

    def write_model(self, model: ResidualModel) -> bytes:
        """Return `model` as bytes."""
        return models.write_model(model)

    def read_model(self, data: ByteArray, dtype: Dtype, raw_nbytes: int) -> ResidualModel:
        """Return the model in `data`, all of it checked."""
        return models.read_model(data, dtype, raw_nbytes, self.symbol_shift)

    def encode_chunk(
        self, model: ResidualModel, start: int, target: ByteArray, base: ByteArray, dtype: Dtype
    ) -> bytes:
        """Return the incomplete element at the end of `target`, and the stream of all others."""
        ours, theirs = words_of(target, dtype), words_of(base, dtype)
        states, words = entropy.empty_stream(ours.size, model.elements.passes)
        height = kernels.encode_residuals(
            PATH,
            ours,
            theirs,
            start // dtype.width,
            model.elements,
            model.contexts,
            model.ranges,
            states,
            words,
        )
        tail = target[ours.nbytes :].tobytes()
        return tail + entropy.write_stream(states, words[:height])

    def decode_chunk(
        self,
        model: ResidualModel,
        start: int,
        payload: ByteArray,
        base: ByteArray,
        out: ByteArray,
        dtype: Dtype,
    ) -> None:
        """Fill `out` from what `encode_chunk` returned."""
        theirs = words_of(base, dtype)
        n_tail = out.size - theirs.nbytes
        out[theirs.nbytes :] = take(payload, 0, n_tail)
        states, words = entropy.read_stream(payload[n_tail:], theirs.size)
        with aligned_words(out[: theirs.nbytes], dtype) as ours:
            fault = kernels.decode_residuals(
                PATH,
                words,
                theirs,
                start // dtype.width,
                model.elements,
                model.contexts,
                model.slots,
                states,
                ours,
            )
        entropy.check(fault)


class FMPP(_Ordered):
    """Sign and bit length of the difference, one table."""

    name: Final = "fmpp"
    wire_id: Final = 5
    symbol_shift = MSB_SHIFT


class ULPack(_Ordered):
    """Three leading bits of the folded difference, tables by exponent."""

    name: Final = "ulpack"
    wire_id: Final = 6


class ULProw(_Ordered):
    """As `ULPack`, tables also by row."""

    name: Final = "ulprow"
    wire_id: Final = 7
    looks_at_rows = True

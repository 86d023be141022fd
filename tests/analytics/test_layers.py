"""What a tensor does in its model, from the names that models of all kinds use."""

import pytest

from support.views import open_views

NAMES = {
    "embedding": [
        "model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight",
        "bert.embeddings.word_embeddings.weight", "wpe.weight", "embeddings.position_ids",
    ],
    "head": [
        "lm_head.weight", "classifier.bias", "score.weight", "bert.pooler.dense.weight",
        "cls.predictions.decoder.weight", "qa_outputs.weight",
        "embed_out.weight",
    ],
    "norm": [
        "model.norm.weight", "h.3.ln_1.weight", "ln_f.bias", "model.layers.0.input_layernorm.weight",
        "encoder.layer.0.attention.output.LayerNorm.weight", "layers.1.self_attn.q_norm.weight",
        "encoder.embeddings.LayerNorm.bias",
    ],
    "attention qkv": [
        "h.0.attn.c_attn.weight", "gpt_neox.layers.0.attention.query_key_value.weight",
        "blocks.0.attn.qkv.weight", "multi_head.in_proj_weight", "blocks.1.attn.Wqkv.weight",
    ],
    "attention q": [
        "model.layers.0.self_attn.q_proj.weight", "encoder.layer.0.attention.self.query.bias",
        "layers.0.attention.wq.weight", "transformer.layer.0.attention.q_lin.weight",
        "base_model.model.layer.0.attention.self.query.lora_A.weight",
        "encoder.block.0.layer.0.SelfAttention.q.weight",
    ],
    "attention k": ["model.layers.0.self_attn.k_proj.weight", "x.attention.self.key.weight"],
    "attention v": ["model.layers.0.self_attn.v_proj.weight", "x.attention.self.value.weight"],
    "attention o": [
        "model.layers.0.self_attn.o_proj.weight", "encoder.layer.0.attention.output.dense.weight",
        "h.0.attn.c_proj.weight", "gpt_neox.layers.0.attention.dense.weight",
        "vit.encoder.layers.0.self_attn.out_proj.weight", "blocks.0.attn.proj.weight",
    ],
    "mlp": [
        "model.layers.0.mlp.gate_proj.weight", "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight",
        "encoder.layer.0.intermediate.dense.weight", "encoder.layer.0.output.dense.bias",
        "layers.0.feed_forward.w1.weight", "layers.0.fc1.weight",
        "model.layers.0.block_sparse_moe.experts.1.w2.weight", "transformer.layer.0.ffn.lin1.weight",
        "model.layers.9.mlp.experts.gate_up_proj",
    ],
    "other": ["conv1.weight", "exp_avg.0", "logit_scale", "optimizer.state", "dense.weight"],
}  # fmt: skip


@pytest.fixture(scope="module")
def connection(stores):
    with open_views(stores / "one") as connection:
        yield connection


@pytest.mark.parametrize(("layer", "name"), [(k, n) for k, names in NAMES.items() for n in names])
def test_layer(connection, layer, name):
    assert connection.execute("SELECT layer_of(?)", [name]).fetchall() == [(layer,)]

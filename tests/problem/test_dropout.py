"""What models draw follows from the key: every kind of layer and function, with torch's own distribution."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedhv.problem.dropout import Draws

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0))
KEY = 77

LAYERS = {
    "dropout": nn.Dropout(0.4),
    "inplace": nn.Dropout(0.4, inplace=True),
    "dropout1d": nn.Dropout1d(0.4),
    "alpha": nn.AlphaDropout(0.4),
    "feature alpha": nn.FeatureAlphaDropout(0.4),
    "rrelu": nn.RReLU(),
    "lstm": nn.LSTM(8, 4, 3, dropout=0.4),
    "gru": nn.GRU(8, 4, 2, dropout=0.4, batch_first=True, bidirectional=True),
    "rnn": nn.RNN(8, 4, 2, dropout=0.4),
    "encoder": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "decoder": lambda x: nn.functional.linear(DECODER(x, x), torch.eye(8)),
    "attention": lambda x: ATTENTION(x, x, x)[0],
    "attention without weights": lambda x: ATTENTION(x, x, x, need_weights=False)[0],
    "dropout2d": lambda x: F.dropout2d(x[..., None], 0.4),
    "dropout3d": lambda x: F.dropout3d(x[..., None, None], 0.4),
    "sdpa": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
    "gumbel": F.gumbel_softmax,
    "rand": lambda x: torch.rand(3, 4),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn((3, 4)),
    "randn_like": torch.randn_like,
    "randn without a generator": lambda x: torch.randn((3, 4), generator=None),
    "normal": lambda x: torch.normal(0.0, 2.0, (3, 4)),
    "normal of means": lambda x: torch.normal(x, x.abs()),
    "randint": lambda x: torch.randint(0, 1000, (3, 4)),
    "randperm": lambda x: torch.randperm(50),
    "bernoulli": lambda x: torch.bernoulli(torch.full((20,), 0.5)),
    "bernoulli_": lambda x: x.new_empty(20).bernoulli_(0.3),
    "uniform_": lambda x: torch.empty(9).uniform_(2, 3),
    "normal_": lambda x: torch.empty(9).normal_(mean=2.0),
    "exponential_": lambda x: torch.empty(9).exponential_(3.0),
}
ATTENTION = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True)
DECODER = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)


def drawn(function, key: int | Tensor = KEY, x: Tensor = X) -> Tensor:
    with Draws(key):
        result = function(x.clone())
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize("function", LAYERS.values(), ids=LAYERS)
def test_a_draw_depends_on_the_key_alone(function):
    torch.manual_seed(1)
    first = drawn(function)
    torch.manual_seed(2)
    assert torch.equal(drawn(function), first)
    assert not torch.equal(drawn(function, KEY + 1), first)


@pytest.mark.parametrize("name", ["dropout", "inplace", "dropout1d", "alpha", "rrelu", "encoder", "attention", "sdpa",
                                  "gumbel", "rand_like", "randn_like", "dropout2d", "feature alpha",
                                  "normal", "normal of means", "randint", "randperm"])  # fmt: skip
def test_a_stack_of_clients_draws_what_each_draws_alone(name):
    stack = torch.stack([X, 2 * X, -X])
    keys = torch.tensor([5, -6, 7])
    mapped = torch.func.vmap(lambda key, x: drawn(LAYERS[name], key, x), randomness="different")(keys, stack)
    alone = torch.stack([drawn(LAYERS[name], key, x) for key, x in zip(keys.tolist(), stack, strict=True)])
    torch.testing.assert_close(mapped, alone)


@pytest.mark.parametrize(
    "name", ["dropout", "alpha", "rrelu", "encoder", "attention", "attention without weights", "gru"]
)
def test_examples_draw_the_same_in_a_minibatch_that_is_filled_up(name):
    torch.testing.assert_close(drawn(LAYERS[name], x=X)[:4], drawn(LAYERS[name], x=X[:4]))


def test_also_where_examples_are_counted_by_the_second_axis():
    torch.testing.assert_close(drawn(LAYERS["lstm"], x=X)[:, :3], drawn(LAYERS["lstm"], x=X[:, :3]))


def test_dropout_keeps_and_scales():
    ones = torch.ones(400, 100)
    for p in (0.1, 0.5, 0.75):
        kept = drawn(nn.Dropout(p), x=ones)
        assert set(kept.unique().tolist()) == {0.0, float(torch.tensor(1 / (1 - p)))}
        assert float((kept == 0).float().mean()) == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / kept.numel()))
    assert torch.equal(drawn(nn.Dropout(0.0), x=ones), ones)
    assert not drawn(nn.Dropout(1.0), x=ones).any()
    assert torch.equal(drawn(nn.Dropout(0.5).eval(), x=ones), ones)


def test_feature_dropout_drops_channels_as_a_whole():
    kept = drawn(nn.Dropout2d(0.5), x=torch.ones(50, 40, 3, 3)).flatten(2)
    assert torch.equal(kept.amin(dim=2), kept.amax(dim=2))
    assert 0.4 < float((kept[..., 0] == 0).float().mean()) < 0.6


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)])
def test_alpha_dropout_has_torch_s_two_branches(layer):
    ones = torch.ones(300, 200)
    found, native = drawn(layer, x=ones), layer(ones)
    torch.testing.assert_close(found.unique(), native.unique())
    assert float(found.mean()) == pytest.approx(float(native.mean()), abs=0.03)


@pytest.mark.parametrize(
    ("function", "mean", "std"),
    [
        (torch.rand_like, 0.5, 12**-0.5),
        (torch.randn_like, 0.0, 1.0),
        (lambda x: torch.empty_like(x).uniform_(2, to=4), 3.0, 2 * 12**-0.5),
        (lambda x: torch.empty_like(x).normal_(1, 3), 1.0, 3.0),
        (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
        (lambda x: torch.empty_like(x).bernoulli_(0.2), 0.2, 0.4),
        (lambda x: torch.bernoulli(x, 0.2), 0.2, 0.4),
        (lambda x: torch.normal(x + 1, 3), 1.0, 3.0),
        (lambda x: torch.randint(-3, 5, x.shape).float(), 0.5, (63 / 12) ** 0.5),
    ],
)
def test_other_draws_have_their_distribution(function, mean, std):
    values = drawn(function, x=torch.zeros(300, 300))
    assert float(values.mean()) == pytest.approx(mean, abs=5 * std / 300)
    assert float(values.std()) == pytest.approx(std, rel=0.03)


def test_whole_numbers_are_in_their_range_and_orders_have_every_number():
    assert drawn(lambda x: torch.randint(3, (999,))).unique().tolist() == [0, 1, 2]
    named = drawn(lambda x: torch.randint(low=2, high=4, size=(99,), dtype=torch.int32))
    assert (named.dtype, named.unique().tolist()) == (torch.int32, [2, 3])
    assert drawn(lambda x: torch.randint(5, high=6, size=(9,))).unique().tolist() == [5]
    assert drawn(lambda x: torch.randperm(50)).sort().values.tolist() == list(range(50))
    with pytest.raises(RuntimeError, match="less than"):
        drawn(lambda x: torch.randint(3, 3, (2,)))


@pytest.mark.parametrize("name", ["rand", "rand_like", "randn", "randn_like", "normal", "randint", "randperm"])
def test_torchs_generator_stays_as_it_is(name):
    """A trial compares passes of a model only if they draw from nothing else."""
    before = torch.get_rng_state()
    drawn(LAYERS[name])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}, {"mask": "bool"},
                                     {"mask": "float"}])  # fmt: skip
def test_attention_without_what_is_dropped_is_torch_s(options, monkeypatch):
    monkeypatch.setattr(Draws, "dropped", lambda draws, inputs, p, shape=None: torch.ones_like(inputs))
    query, key, value = (torch.randn(3, 4, 5, 8) for _ in range(3))
    if "enable_gqa" in options:
        key, value = key[:, :2], value[:, :2]
    allowed = torch.rand(5, 5) < 0.6
    allowed[2] = False  # a query that may see nothing
    masks = {"bool": allowed, "float": torch.randn(5, 5)}
    named = {name: value for name, value in options.items() if name != "mask"}
    mask = masks.get(options.get("mask"))
    expected = F.scaled_dot_product_attention(query, key, value, mask, **named)
    with Draws(KEY):
        found = F.scaled_dot_product_attention(query, key, value, mask, 0.4, **named)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_without_what_is_dropped_are_torch_s(kind, packed, monkeypatch):
    monkeypatch.setattr(Draws, "dropped", lambda draws, inputs, p, shape=None: torch.ones_like(inputs))
    layer = kind(8, 4, 3, dropout=0.4, bidirectional=True)
    x = nn.utils.rnn.pack_padded_sequence(X, [6, 4, 3, 3, 1]) if packed else X
    with Draws(KEY):
        found, ends = layer(x)
    expected, expected_ends = layer.eval()(x)
    first, second = (each.data if packed else each for each in (found, expected))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(ends, expected_ends)


def test_a_generator_of_the_model_s_own_is_left_alone():
    def function(x: Tensor) -> Tensor:
        return torch.rand(4, generator=torch.Generator().manual_seed(3))

    assert torch.equal(drawn(function), function(X))


def test_gradients_flow_through_what_is_kept():
    x = X.clone().requires_grad_()
    with Draws(KEY):
        kept = F.dropout(x, 0.4)
    (gradient,) = torch.autograd.grad(kept.sum(), x)
    torch.testing.assert_close(gradient * x, kept)

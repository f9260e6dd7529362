"""Random draws inside a model, such as dropout, as a function of a key: the same on every engine and device.

`Draws(key)` is a context. In it, torch's random functions take their bits from `fedhv.problem.counter` instead of
torch's generator, in layers and in a user's `forward`. The draws of a forward pass are numbered in the order of the
calls. The context intercepts calls in Python, so it works in eager code, under `vmap` and in `make_fx` (whose graph the
stacked engine compiles). Dropout inside torch's own functions (attention, recurrent layers) is reimplemented here.

Covered: all kinds of dropout, including attention and recurrent layers, RReLU, `gumbel_softmax`, `bernoulli`, `rand`,
`randn`, `*_like`, `normal`, `randint`, `randperm`, `uniform_`, `normal_`, `exponential_`. Others (`multinomial`,
`poisson`, …) use torch's generator: per client on the sequential and parallel engines, and per stack on the stacked
engine.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fedhv.problem.counter import bits, kept

ALPHA = 1.7580993408473766
"""Minus the value at which SELU saturates; alpha dropout sets elements to it instead of zero."""

LARGEST = 2**63 - 1
"""The largest int64."""

Function = Callable[..., Any]

FAST: list[Callable[[Tensor, int, torch.Size, float], Tensor | None]] = []
"""A function of key, draw, shape and p that computes the factor of dropout on a GPU, if an engine has one."""


class Draws(TorchFunctionMode):
    """A forward pass whose draws are functions of `key`: a number, or an int64 tensor that `vmap` maps over clients."""

    def __init__(self, key: int | Tensor) -> None:
        super().__init__()
        self.key = key
        self.count = 0

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of `func`, with the draws of this pass."""
        if func not in _INTERCEPTED:  # most calls of a forward pass: they must cost little
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        replacement = _REPLACEMENTS.get(func)
        if replacement is not None and all(kwargs.get(name) is None for name in _PLACES):
            named = {name: value for name, value in kwargs.items() if name not in _PLACES}
            return replacement(self, func, *args, **named)
        body = _OPENED.get(func)
        if body is None or not _PLAIN.issuperset(types):
            return func(*args, **kwargs)
        with self:
            return body(*args, **kwargs)

    def words(self, like: Tensor, shape: torch.Size | None = None) -> Tensor:
        """The bits of the next draw, on the device of `like`."""
        self.count += 1
        return bits(self.key, self.count, like.shape if shape is None else shape, like.device)

    def keep(self, like: Tensor, p: float, shape: torch.Size | None = None) -> Tensor:
        """The elements that are kept, each with probability 1 − p."""
        words = self.words(like, shape)
        return words >= keep_bound(p) if p < 1 else torch.zeros_like(words, dtype=torch.bool)

    def uniform(self, like: Tensor) -> Tensor:
        """Uniform numbers strictly between 0 and 1, on a grid of 2²³ that float32 holds exactly."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        return (((self.words(like) >> 41) & (2**23 - 1)).to(dtype) + 0.5) * 2**-23

    def normal(self, like: Tensor) -> Tensor:
        """Standard normal numbers, by the Box–Muller transform of two uniform ones."""
        radius = (-2 * self.uniform(like).log()).sqrt()
        return (radius * torch.cos(2 * math.pi * self.uniform(like))).to(like.dtype)

    def dropped(self, inputs: Tensor, p: float, shape: torch.Size | None = None) -> Tensor:
        """The factor of dropout: 0 or 1 / (1 − p)."""
        if FAST and isinstance(self.key, Tensor):
            made = FAST[0](self.key, self.count + 1, inputs.shape if shape is None else shape, p)
            if made is not None:
                self.count += 1
                return made.to(inputs.dtype)
        if not isinstance(self.key, Tensor) and p < 1 and inputs.device.type == "cpu" and inputs.dtype == torch.float32:
            self.count += 1
            return factors([self.key], self.count, inputs.shape if shape is None else shape, p)[0]
        return self.keep(inputs, p, shape).to(inputs.dtype).mul_(1 / (1 - p) if p < 1 else 0.0)


def factors(keys: Sequence[int], draw: int, shape: Sequence[int], p: float) -> Tensor:
    """The factors of dropout, in float32 on a CPU, in the given draw of passes with these keys; p is below 1."""
    return kept(keys, draw, shape, keep_bound(p), 1 / (1 - p))


def keep_bound(p: float) -> int:
    """The smallest word of a kept element. Signed words are uniform from −2⁶³ on; the bound of p = 1 is no int64."""
    return round(p * 2**64) - 2**63


# --- functions of the python layer ------------------------------------------------------------------------------

_PLAIN = {Tensor, nn.Parameter}
"""Other types of tensors have their own `__torch_function__`."""


def opened(function: Any) -> Function:
    """A function of `torch.nn.functional` that is not intercepted itself, so that the functions that it calls are.

    Torch dispatches a whole function to the context before its body runs. Without this, calls inside
    `multi_head_attention_forward` could not be intercepted.
    """
    closed = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _no)
    made = types.FunctionType(
        function.__code__,
        function.__globals__ | closed,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _no(*_: object) -> bool:
    return False


_OPENED: dict[Function, Function] = {
    function: opened(function)
    for function in (
        F.dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.alpha_dropout,
        F.feature_alpha_dropout,
        F.rrelu,
        F.gumbel_softmax,
        F.multi_head_attention_forward,
    )
}

# --- dropout ----------------------------------------------------------------------------------------------------


def _features(inputs: Tensor) -> torch.Size:
    """One draw for every channel of every example."""
    return torch.Size([*inputs.shape[:2], *[1] * (inputs.ndim - 2)])


def _dropout(draws: Draws, func: Function, input: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0:
        return _result(func(input, p, train))
    factor = draws.dropped(input, p, _features(input) if "feature" in func.__name__ else None)
    return input.mul_(factor) if func.__name__.endswith("_") else input * factor


def _alpha_dropout(draws: Draws, func: Function, input: Tensor, p: float, train: bool) -> Tensor:
    """Keeps mean and variance of what SELU gives (Klambauer et al., 2017)."""
    if not train or p in (0, 1):
        return _result(func(input, p, train))
    keep = draws.keep(input, p, _features(input) if "feature" in func.__name__ else None).to(input.dtype)
    a = 1 / math.sqrt((ALPHA**2 * p + 1) * (1 - p))
    shift = (keep - 1) * (ALPHA * a) + ALPHA * a * p
    return input.mul_(keep * a).add_(shift) if func.__name__.endswith("_") else input * (keep * a) + shift


def _attention(
    draws: Draws,
    func: Function,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Scaled dot-product attention, softmax(QKᵀ / √E + mask) V, with dropout of the attention weights."""
    if dropout_p == 0:
        return _result(func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa))
    weights, value = attention_weights(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    return (weights * draws.dropped(weights, dropout_p)).to(value.dtype) @ value


def attention_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ / √E + mask), and the values with a head for every head of the queries; the softmax is in float32."""
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if scores.dtype in (torch.bfloat16, torch.float16):
        scores = scores.float()
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is None:
        weights = scores.softmax(-1)
    else:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        nothing = (scores == -math.inf).all(-1, keepdim=True)  # a query whose keys are all masked gets zeros
        weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return weights, value


def _recurrent(draws: Draws, func: Function, *arguments: Any) -> Any:
    """An LSTM, GRU or RNN, one layer after the other with dropout between them."""
    at = 3 if isinstance(arguments[3], bool) else 4  # packed sequences also have batch sizes
    (inputs, *sizes, begin, weights), (biases, layers, p, train, *rest) = arguments[:at], arguments[at:]
    if not train or p == 0 or layers == 1:
        return func(*arguments)
    states = begin if isinstance(begin, list | tuple) else (begin,)
    of_layer = [[each.chunk(layers)[i] for each in states] for i in range(layers)]
    count, ends = len(weights) // layers, []
    for i, state in enumerate(of_layer):
        if i > 0:
            inputs = inputs * draws.dropped(inputs, p)
        own = weights[i * count : (i + 1) * count]
        first = state if isinstance(begin, list | tuple) else state[0]
        inputs, *end = func(inputs, *sizes, first, own, biases, 1, 0.0, train, *rest)
        ends.append(end)
    return inputs, *(torch.cat(each) for each in zip(*ends, strict=True))


# --- other draws ------------------------------------------------------------------------------------------------


def _rrelu(
    draws: Draws,
    func: Function,
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> Tensor:
    """Negative elements times a random slope."""
    if not training:
        return _result(func(input, lower, upper, training))
    slope = (lower + (upper - lower) * draws.uniform(input)).to(input.dtype)
    factor = torch.where(input >= 0, 1.0, slope)
    return input.mul_(factor) if func.__name__.endswith("_") else input * factor


def _new(distribution: Function, empty: Function) -> Function:
    """For functions that create a tensor: `empty` creates it without a draw."""

    def replacement(draws: Draws, func: Function, *args: Any, **kwargs: Any) -> Tensor:
        made: Tensor = empty(*args, **kwargs)
        drawn: Tensor = distribution(draws, made).to(made.dtype)
        return drawn.requires_grad_() if made.requires_grad else drawn

    return replacement


def _normal(
    draws: Draws, func: Function, mean: float | Tensor, std: float | Tensor = 1.0, size: Any = None, **options: Any
) -> Tensor:
    """Normal numbers; a tensor of means or deviations, or a size, says how many."""
    whole = mean + 0 * std
    made = torch.empty_like(whole) if isinstance(whole, Tensor) else torch.empty(size, **options)
    drawn = mean + std * draws.normal(made)
    return drawn.detach().to(made.dtype)


def _randint(
    draws: Draws, func: Function, *given: Any, low: int = 0, high: int | None = None, size: Any = None, **options: Any
) -> Tensor:
    """Whole numbers from `low` up to, but without, `high`."""
    *bounds, size = given if size is None else (*given, size)
    bounds += [] if high is None else [high]
    first, end = bounds if len(bounds) == 2 else (low, *bounds)
    if not first < end:
        return _result(func(first, end, size, **options))  # torch's error
    made = torch.empty(size, **options | {"dtype": options.get("dtype") or torch.int64})
    drawn: Tensor = (draws.words(made) & LARGEST) % (end - first) + first
    return drawn.to(made.dtype)


def _randperm(draws: Draws, func: Function, n: int, **options: Any) -> Tensor:
    """The numbers below n in random order."""
    made = torch.empty(n, **options | {"dtype": options.get("dtype") or torch.int64})
    return draws.words(made).argsort().to(made.dtype)


def _bernoulli(draws: Draws, func: Function, input: Tensor, p: float | None = None, **_: Any) -> Tensor:
    return (draws.uniform(input) < (input if p is None else p)).to(input.dtype)


def _bernoulli_(draws: Draws, func: Function, input: Tensor, p: float | Tensor = 0.5, **_: Any) -> Tensor:
    return input.copy_(draws.uniform(input) < p)


def _uniform_(draws: Draws, func: Function, input: Tensor, *bounds: float, **named: float) -> Tensor:
    low = bounds[0] if bounds else named.get("from", 0.0)
    high = bounds[1] if len(bounds) > 1 else named.get("to", 1.0)
    return input.copy_(low + (high - low) * draws.uniform(input))


def _normal_(draws: Draws, func: Function, input: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return input.copy_(mean + std * draws.normal(input))


def _exponential_(draws: Draws, func: Function, input: Tensor, lambd: float = 1.0, **_: Any) -> Tensor:
    return input.copy_(-draws.uniform(input).log() / lambd)


def _result(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


_REPLACEMENTS: dict[Function, Function] = {
    **dict.fromkeys((torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_), _dropout),
    **dict.fromkeys(
        (torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout, torch.feature_alpha_dropout_),
        _alpha_dropout,
    ),
    F.scaled_dot_product_attention: _attention,
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
    **dict.fromkeys((torch.rrelu, torch.rrelu_), _rrelu),
    torch.rand: _new(Draws.uniform, torch.empty),
    torch.rand_like: _new(Draws.uniform, torch.empty_like),
    torch.randn: _new(Draws.normal, torch.empty),
    torch.randn_like: _new(Draws.normal, torch.empty_like),
    torch.normal: _normal,
    torch.randint: _randint,
    torch.randperm: _randperm,
    **dict.fromkeys((torch.bernoulli, Tensor.bernoulli), _bernoulli),
    Tensor.bernoulli_: _bernoulli_,
    Tensor.uniform_: _uniform_,
    Tensor.normal_: _normal_,
    Tensor.exponential_: _exponential_,
}

_PLACES = ("generator", "out")
"""Arguments for a generator or a tensor of the user's own, with which a draw is left to torch."""

_INTERCEPTED = frozenset({*_REPLACEMENTS, *_OPENED})

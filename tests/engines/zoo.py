"""Architectures that users bring: what the engines must agree on, tiny for tests and larger for benchmarks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedhv import Problem, classification

CLASSES = (3, 4)
WORDS = 50


@dataclass(frozen=True)
class Size:
    """How large a model is, and its examples."""

    width: int
    length: int
    image: int
    depth: int
    heads: int


TINY = Size(width=8, length=5, image=8, depth=2, heads=2)
FULL = Size(width=128, length=32, image=32, depth=2, heads=4)


class TwoTasks(nn.Module):
    """An encoder with a linear head for every task."""

    def __init__(self, encoder: nn.Module, features: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleList(nn.Linear(features, count) for count in CLASSES)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        features = self.encoder(inputs)
        return [head(features) for head in self.heads]


# --- attention --------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    """`nn.MultiheadAttention` over tokens; words 0 are padding, which a mask hides."""

    def __init__(self, size: Size, need_weights: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width, padding_idx=0)
        self.attention = nn.MultiheadAttention(size.width, size.heads, batch_first=True)
        self.need_weights = need_weights

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        hidden = (tokens == 0).index_fill(1, tokens.new_zeros(1, dtype=torch.long), False)  # never all of them
        return self.attention(x, x, x, key_padding_mask=hidden, need_weights=self.need_weights)[0].mean(dim=1)


class Encoder(nn.Module):
    """`nn.TransformerEncoder` with positions; causal, so that the last token has seen all."""

    def __init__(self, size: Size, causal: bool = True, norm_first: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width)
        self.positions = nn.Parameter(0.1 * torch.randn(size.length, size.width))
        layer = nn.TransformerEncoderLayer(
            size.width, size.heads, 2 * size.width, dropout, batch_first=True, norm_first=norm_first
        )
        self.layers = nn.TransformerEncoder(layer, size.depth, enable_nested_tensor=not norm_first)
        self.causal = causal

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions
        if not self.causal:
            return self.layers(x).mean(dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.layers(x, mask=mask, is_causal=True)[:, -1]


class AlwaysEvaluating(Encoder):
    """A frozen transformer that stays in evaluation mode, where torch takes its fast path."""

    def __init__(self, size: Size) -> None:
        super().__init__(size, causal=False)
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> AlwaysEvaluating:
        return super().train(False)


class EvaluatingAndTrained(Encoder):
    """A transformer that is trained in evaluation mode: its fast path must not be taken."""

    def __init__(self, size: Size) -> None:
        super().__init__(size, causal=False)
        self.eval()

    def train(self, mode: bool = True) -> EvaluatingAndTrained:
        return super().train(False)


class Translator(nn.Module):
    """`nn.Transformer`: encoder, decoder and cross-attention."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width)
        self.transformer = nn.Transformer(size.width, size.heads, 1, 1, 2 * size.width, dropout=0.0, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        return self.transformer(x, x.flip(1)).mean(dim=1)


class ScaledDotProduct(nn.Module):
    """`F.scaled_dot_product_attention` called directly: causal, or with a mask that depends on the inputs."""

    def __init__(self, size: Size, masked: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.heads, self.masked = size.heads, masked

    def forward(self, tokens: Tensor) -> Tensor:
        n, length = tokens.shape
        q, k, v = self.qkv(self.words(tokens)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.masked:
            near = torch.eye(length, dtype=torch.bool, device=tokens.device)
            mask = (tokens > WORDS // 3)[:, None, None, :] | near
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        return y.transpose(1, 2).flatten(2).mean(dim=1)


class Patches(nn.Module):
    """A vision transformer: patches by a convolution, a class token, layers that normalise first."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size.width, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, size.width))
        self.positions = nn.Parameter(0.1 * torch.randn((size.image // 4) ** 2 + 1, size.width))
        layer = nn.TransformerEncoderLayer(
            size.width, size.heads, 2 * size.width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, size.depth, nn.LayerNorm(size.width), enable_nested_tensor=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        return self.layers(x + self.positions)[:, 0]


# --- recurrence -------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A recurrent layer of torch over sequences; the state at its end."""

    def __init__(self, layer: nn.RNNBase, given: bool = False) -> None:
        super().__init__()
        self.layer = layer
        directions = 2 if layer.bidirectional else 1
        self.start = nn.Parameter(torch.randn(layer.num_layers * directions, 1, layer.hidden_size)) if given else None

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.layer.batch_first:
            inputs = inputs.transpose(0, 1)
        n = inputs.shape[0 if self.layer.batch_first else 1]
        state = None if self.start is None else self.start.expand(-1, n, -1).contiguous()
        outputs, last = self.layer(inputs, state)
        last = last[1] if isinstance(last, tuple) else last
        return torch.cat([outputs.mean(dim=1 if self.layer.batch_first else 0), last[-1]], dim=1)


class Cells(nn.Module):
    """A loop over torch's cells that a user wrote."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            nn.LSTMCell(size.width, size.width), nn.GRUCell(size.width, size.width), nn.RNNCell(size.width, size.width)
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        first, second, third = None, None, None
        for x in inputs.unbind(1):
            first = self.first(x, first)
            second = self.second(first[0], second)
            third = self.third(second, third)
        return third


# --- words, sequences, images -----------------------------------------------------------------------------------


class Bags(nn.Module):
    """`nn.EmbeddingBag`: mean without padding, and sum."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(WORDS, size.width, padding_idx=0)
        self.sum = nn.EmbeddingBag(WORDS, size.width, mode="sum")

    def forward(self, tokens: Tensor) -> Tensor:
        return self.mean(tokens) + self.sum(tokens.flip(1)[:, :2]).tanh()


class Tied(nn.Module):
    """Embeddings that are the output layer too: one parameter in two places."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width)
        self.inner = nn.Sequential(nn.Linear(size.width, size.width), nn.Tanh())
        self.scores = nn.Linear(size.width, WORDS, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scores(self.inner(self.words(tokens).mean(dim=1)))


class Sequences(nn.Sequential):
    """Dilated convolutions over time."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            nn.Conv1d(size.width, size.width, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(size.width, size.width, 3, padding=2, dilation=2),
            nn.SiLU(),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.transpose(1, 2)).mean(dim=2)


class Block(nn.Module):
    """MobileNet's block: a depthwise convolution between two of 1 × 1, with squeeze and excitation."""

    def __init__(self, width: int, dilation: int = 1) -> None:
        super().__init__()
        self.spread = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GroupNorm(4, 2 * width), nn.Hardswish())
        self.each = nn.Sequential(
            nn.Conv2d(2 * width, 2 * width, 3, padding=dilation, groups=2 * width, dilation=dilation),
            nn.GroupNorm(4, 2 * width),
            nn.Hardswish(),
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * width, width, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 1),
            nn.Hardsigmoid(),
        )  # fmt: skip
        self.gather = nn.Sequential(nn.Conv2d(2 * width, width, 1), nn.GroupNorm(4, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.each(self.spread(x))
        return x + self.gather(y * self.gate(y))


class Residual(nn.Module):
    """ResNet's basic block with GroupNorm."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, padding=1, bias=False), nn.GroupNorm(4, out), nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False), nn.GroupNorm(4, out),
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.GroupNorm(4, out))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.short(x))


def mobile(size: Size) -> nn.Module:
    """A stem, blocks of which the second dilates, the mean of all places."""
    blocks = [Block(size.width, dilation=1 + i % 2) for i in range(2 * size.depth)]
    return nn.Sequential(
        nn.Conv2d(3, size.width, 3, 2, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )  # fmt: skip


def residual(size: Size) -> nn.Module:
    """A residual network: two blocks a stage; with four stages of 64 to 512 channels it is a ResNet-18."""
    stages = 4 if size.width >= 64 else 2
    widths = [64 * 2**i if stages == 4 else size.width for i in range(stages)]
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.GroupNorm(4, widths[0]), nn.ReLU()]
    for i, width in enumerate(widths):
        layers += [Residual(widths[max(i - 1, 0)], width, 1 + (i > 0)), Residual(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Frozen(nn.Module):
    """A frozen convolutional encoder under a trainable layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.frozen = mobile(size).requires_grad_(False)
        self.trained = nn.Sequential(nn.Linear(size.width, size.width), nn.LayerNorm(size.width), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.frozen(images)
        return self.trained(features)


class LowRank(nn.Module):
    """A frozen linear layer with a trainable update of low rank."""

    def __init__(self, layer: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + F.linear(F.linear(x, self.down), self.up)


class AdaptedLayer(nn.Module):
    """A transformer layer whose frozen linear layers have low-rank adapters."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(2)).requires_grad_(False)
        self.qkv = LowRank(nn.Linear(size.width, 3 * size.width))
        self.inner = nn.Sequential(
            LowRank(nn.Linear(size.width, 2 * size.width)), nn.GELU(), LowRank(nn.Linear(2 * size.width, size.width))
        )
        self.heads = size.heads

    def forward(self, x: Tensor) -> Tensor:
        n, length, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.inner(self.norms[1](x))


class Adapted(nn.Module):
    """A frozen transformer with low-rank adapters."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, size.width).requires_grad_(False)
        self.layers = nn.Sequential(*(AdaptedLayer(size) for _ in range(size.depth)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.words(tokens)).mean(dim=1)


class Perceptron(nn.Sequential):
    """Layers with LayerNorm."""

    def __init__(self, size: Size) -> None:
        super().__init__(
            nn.Flatten(), nn.Linear(size.length * size.width, size.width), nn.LayerNorm(size.width), nn.GELU(),
            nn.Linear(size.width, size.width), nn.LayerNorm(size.width), nn.GELU(),
        )  # fmt: skip


# --- torchvision and transformers, where they are installed -----------------------------------------------------


def torchvision_vit(size: Size) -> nn.Module:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(size.image, 4, size.depth, size.heads, size.width, 2 * size.width)
    model.heads = nn.Identity()
    return model


def torchvision_mobilenet(size: Size) -> nn.Module:
    from torchvision.models import mobilenet_v3_small

    model = mobilenet_v3_small(norm_layer=lambda channels: nn.GroupNorm(4, channels))
    model.classifier = nn.Linear(576, size.width)
    return model


def torchvision_resnet(size: Size) -> nn.Module:
    from torchvision.models import resnet18

    model = resnet18(norm_layer=lambda channels: nn.GroupNorm(4, channels))
    model.fc = nn.Linear(512, size.width)
    return model


class Bert(nn.Module):
    """A BERT of transformers, without dropout."""

    def __init__(self, size: Size, attention: str) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=WORDS, hidden_size=size.width, num_hidden_layers=size.depth, num_attention_heads=size.heads,
            intermediate_size=2 * size.width, max_position_embeddings=size.length, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, attn_implementation=attention,
        )  # fmt: skip
        self.bert = BertModel(config, add_pooling_layer=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.bert(tokens).last_hidden_state[:, 0]


# --- the list ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Architecture:
    """A model, what it takes and the package it comes from."""

    encoder: Callable[[Size], nn.Module]
    takes: str
    features: Callable[[Size], int] = lambda size: size.width
    package: str = "torch"
    image: int = 8
    """The sides of the smallest images that normalisation in its last layers can do with."""

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return importlib.util.find_spec(self.package) is not None

    def inputs(self, rng: np.random.Generator, n: int, size: Size) -> np.ndarray:
        """n examples."""
        if self.takes == "tokens":
            return rng.integers(0, WORDS, (n, size.length))
        shape = (size.length, size.width) if self.takes == "sequences" else (3, size.image, size.image)
        return rng.standard_normal((n, *shape), dtype=np.float32)

    def problem(self, size: Size, clients: list[int], test: int, seed: int = 5) -> Problem:
        """Clients with random examples of the model's shape."""
        size = replace(size, image=max(size.image, self.image))
        rng = np.random.default_rng(seed)

        def examples(n: int) -> tuple[np.ndarray, list[np.ndarray]]:
            return self.inputs(rng, n, size), [rng.integers(0, count, n) for count in CLASSES]

        return Problem.from_clients(
            lambda: TwoTasks(self.encoder(size), self.features(size)),
            [classification("first", CLASSES[0]), classification("second", CLASSES[1])],
            [examples(n) for n in clients],
            examples(test),
        )


def _recurrent(kind: type[nn.RNNBase], given: bool = False, **options: object) -> Callable[[Size], nn.Module]:
    return lambda size: Recurrent(kind(size.width, size.width, **options), given)


ZOO: dict[str, Architecture] = {
    "attention": Architecture(SelfAttention, "tokens"),
    "attention-weights": Architecture(lambda size: SelfAttention(size, need_weights=True), "tokens"),
    "transformer": Architecture(Encoder, "tokens"),
    "transformer-frozen": Architecture(AlwaysEvaluating, "tokens"),
    "transformer-evaluating": Architecture(EvaluatingAndTrained, "tokens"),
    "transformer-dropout": Architecture(lambda size: Encoder(size, dropout=0.2), "tokens"),
    "translator": Architecture(Translator, "tokens"),
    "sdpa-causal": Architecture(lambda size: ScaledDotProduct(size, masked=False), "tokens"),
    "sdpa-masked": Architecture(lambda size: ScaledDotProduct(size, masked=True), "tokens"),
    "vit": Architecture(Patches, "images"),
    "gru": Architecture(_recurrent(nn.GRU, batch_first=True), "sequences", lambda size: 2 * size.width),
    "gru-deep": Architecture(
        _recurrent(nn.GRU, num_layers=2, bidirectional=True), "sequences", lambda size: 3 * size.width
    ),
    "gru-dropout": Architecture(
        _recurrent(nn.GRU, num_layers=2, dropout=0.3, batch_first=True), "sequences", lambda size: 2 * size.width
    ),
    "lstm-dropout": Architecture(
        _recurrent(nn.LSTM, num_layers=2, dropout=0.3, bidirectional=True), "sequences", lambda size: 3 * size.width
    ),
    "lstm": Architecture(_recurrent(nn.LSTM, batch_first=True), "sequences", lambda size: 2 * size.width),
    "lstm-projected": Architecture(
        _recurrent(nn.LSTM, num_layers=2, proj_size=4, bias=False), "sequences", lambda size: 4 + size.width
    ),
    "rnn-given": Architecture(
        _recurrent(nn.RNN, given=True, nonlinearity="relu"), "sequences", lambda size: 2 * size.width
    ),
    "cells": Architecture(Cells, "sequences"),
    "bags": Architecture(Bags, "tokens"),
    "tied": Architecture(Tied, "tokens", lambda size: WORDS),
    "conv1d": Architecture(Sequences, "sequences"),
    "mobilenet": Architecture(mobile, "images"),
    "resnet": Architecture(residual, "images", lambda size: 512 if size.width >= 64 else size.width),
    "frozen": Architecture(Frozen, "images"),
    "lora": Architecture(Adapted, "tokens"),
    "perceptron": Architecture(Perceptron, "sequences"),
    "torchvision-vit": Architecture(torchvision_vit, "images", package="torchvision"),
    "torchvision-mobilenet-v3": Architecture(torchvision_mobilenet, "images", package="torchvision", image=32),
    "torchvision-resnet18": Architecture(torchvision_resnet, "images", package="torchvision", image=32),
    "bert-sdpa": Architecture(lambda size: Bert(size, "sdpa"), "tokens", package="transformers"),
    "bert-eager": Architecture(lambda size: Bert(size, "eager"), "tokens", package="transformers"),
}

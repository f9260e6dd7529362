"""BatchNorm in a federation: layers whose training pass is a pure function of θ and the minibatch.

Torch's layers write new running statistics into their buffers. Here a training pass leaves the buffers alone and gives
the new statistics beside the outputs, so that they can be mapped over clients and put into θ after the step.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedhv.problem.norm_policy import Norm
from fedhv.support.errors import InputError
from fedhv.support.wording import counted

GROUPS = 32
"""The largest number of groups of a GroupNorm that replaces a BatchNorm."""

NUMBERS = 8
"""The smallest number of channels in a group that replaces a BatchNorm1d, if the layer has that many."""

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
"""The layers that policies support; a derived class may compute something else."""


class FrozenNorm(_BatchNorm):
    """BatchNorm that stays in evaluation mode: it normalises by the statistics that it was made with."""

    def train(self, mode: bool = True) -> FrozenNorm:
        """Training changes nothing."""
        return super().train(False)

    def _check_input_dim(self, input: Tensor) -> None:
        """The layer that this one was has checked nothing that `batch_norm` does not."""


class AveragedNorm(_BatchNorm):
    """BatchNorm whose running statistics are entries of θ."""

    resident = False
    """Whether the layer stays with the client."""

    fresh: tuple[Tensor, Tensor] | None = None
    """The running mean and variance after a training pass; `Network` sets it to None before every pass."""

    def forward(self, input: Tensor) -> Tensor:
        """The normalised inputs; a training pass also leaves new statistics in `fresh`."""
        assert self.running_mean is not None
        assert self.running_var is not None
        if not self.training:
            return F.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        if input.numel() == input.shape[1]:
            raise InputError(
                "BatchNorm should see two values per channel or more while training. Found a minibatch with one: give "
                'clients and minibatches two examples or more, or set norm = "frozen" or "group".'
            )
        # A layer that is called twice continues from its first call, as torch's does.
        mean, var = (each.detach().clone() for each in self.fresh or (self.running_mean, self.running_var))
        assert self.momentum is not None
        output = F.batch_norm(input, mean, var, self.weight, self.bias, True, self.momentum, self.eps)
        self.fresh = mean, var
        return output

    def statistics(self) -> list[Tensor]:
        """The running mean and variance after the last training pass; what they were where the pass left it out."""
        found = self.fresh or (self.running_mean, self.running_var)
        return [each.detach() for each in found if each is not None]


class LocalNorm(AveragedNorm):
    """BatchNorm that stays with the client: statistics, scale and shift."""

    resident = True


def apply_norm(module: nn.Module, norm: Norm) -> int:
    """Put a policy into effect, in place; returns the number of layers that it concerns.

    Names and values of parameters stay as they are.
    """
    _check(module, norm)
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}
    if norm == "group":
        grouped = {layer: _grouped(layer) for layer in layers.values()}
        for parent in list(module.modules()):
            for name, child in parent._modules.items():
                if isinstance(child, _BatchNorm):
                    parent._modules[name] = grouped[child]
    else:
        kind = {"frozen": FrozenNorm, "average": AveragedNorm, "local": LocalNorm}.get(norm)
        for layer in layers.values():
            assert kind is not None
            layer.__class__ = kind
            layer.train(layer.training)
    return len(layers)


def norm_note(norm: Norm, layers: int) -> str | None:
    """One line for the user about a policy and the number of layers that it concerns."""
    if not layers:
        return None
    many = counted(layers, "BatchNorm layer")
    match norm:
        case "group":
            return f'norm = "group": GroupNorm takes the place of {many}.'
        case "local":
            return (
                f'norm = "local": each client keeps {many} of its own. The server evaluates with what the model '
                "starts with there."
            )
    return None


def _check(module: nn.Module, norm: Norm) -> None:
    for name, layer in module.named_modules():
        if not isinstance(layer, _NormBase) or isinstance(layer, FrozenNorm | AveragedNorm):
            continue
        kind, tracks = type(layer).__name__, layer.track_running_stats
        if not isinstance(layer, _BatchNorm) and not tracks:
            continue  # InstanceNorm without running statistics has no state
        found = f"The model has {kind} at '{name}'"
        if not isinstance(layer, _BatchNorm):
            raise InputError(
                f"{found} with running statistics, which are not parameters: averaging clients would lose them, and no "
                "policy keeps them. Use `track_running_stats=False`, or nn.GroupNorm."
            )
        if norm == "refuse":
            raise InputError(
                f"{found}. Its statistics depend on the minibatch and are not parameters: averaging clients would mix "
                'or lose them. Use nn.GroupNorm instead, or a policy: norm = "frozen", "local", "average" or "group".'
            )
        if type(layer) not in KINDS:
            raise InputError(f'{found}, which norm = "{norm}" does not know. Use nn.BatchNorm or nn.GroupNorm.')
        if norm != "group" and (not tracks or layer.running_mean is None):
            raise InputError(f'{found} without running statistics, which norm = "{norm}" needs. Use norm = "group".')
        if norm in ("average", "local") and layer.momentum is None:
            raise InputError(f'{found} with momentum = None. For norm = "{norm}" give it a number, such as 0.1.')


def _grouped(layer: _BatchNorm) -> nn.GroupNorm:
    """GroupNorm with the layer's own parameters."""
    channels = layer.num_features
    # Behind a dense layer a channel is one number: of one such number nothing is left, of two their order.
    most = min(GROUPS, max(1, channels // NUMBERS) if isinstance(layer, nn.BatchNorm1d) else channels)
    groups = max(g for g in range(1, most + 1) if channels % g == 0)
    made = nn.GroupNorm(groups, channels, layer.eps, layer.affine)
    if layer.affine:
        made.weight, made.bias = layer.weight, layer.bias
    return made.train(layer.training)

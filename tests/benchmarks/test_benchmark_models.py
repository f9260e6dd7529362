import pytest
import torch
import torch.nn.functional as F

from fedhv.benchmarks.models import CIFARNet, LeNet, ResNet18
from fedhv.problem.parameters import Layout
from fedhv.problem.tasks import classification, multilabel


@pytest.mark.parametrize(
    ("model", "tasks", "total", "head"),
    [(LeNet, 2, 34_635, 3_060), (CIFARNet, 2, 1_726_508, 20_310), (ResNet18, 5, 11_189_352, 4_104)],
)
def test_parameter_counts(model, tasks, total, head):
    layout = Layout.of(model(), tasks)
    assert layout.d == total
    assert [layout.d_head(i) for i in range(tasks)] == [head] * tasks
    assert layout.d_shared == total - tasks * head
    owners = list(layout.owners)
    assert owners == sorted(owners)  # the encoder first, then the heads in the order of the tasks


def test_shared_parameters_of_cifar10_mnist():
    assert Layout.of(CIFARNet(), 2).d_shared == 1_685_888


@pytest.mark.parametrize(
    ("model", "shape", "outputs"),
    [(LeNet, (1, 28, 28), [10, 10]), (CIFARNet, (3, 32, 32), [10, 10]), (ResNet18, (3, 32, 32), [8] * 5)],
)
def test_one_output_per_task(model, shape, outputs):
    assert [tuple(out.shape) for out in model()(torch.zeros(3, *shape))] == [(3, n) for n in outputs]


def test_sizes_follow_the_arguments():
    assert [out.shape for out in LeNet(tasks=3, classes=4, side=16)(torch.zeros(2, 1, 16, 16))] == [(2, 4)] * 3
    assert len(CIFARNet(tasks=3)(torch.zeros(1, 3, 32, 32))) == 3
    assert ResNet18(tasks=2, labels=6)(torch.zeros(1, 3, 32, 32))[1].shape == (1, 6)


def test_dropout_is_one_half_and_only_in_training():
    model = LeNet()
    assert {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)} == {0.5}
    x = torch.randn(4, 1, 28, 28)
    assert not torch.equal(model(x)[0], model(x)[0])
    model.eval()
    assert torch.equal(model(x)[0], model(x)[0])


def test_logits_give_the_losses_of_the_papers_outputs():
    z, y = torch.randn(6, 10), torch.arange(6)
    task = classification("digit", 10)
    torch.testing.assert_close(task.loss(z, y), F.nll_loss(F.log_softmax(z, dim=1), y, reduction="none"))
    torch.testing.assert_close(task.loss(F.log_softmax(z, dim=1), y), task.loss(z, y))
    a, b = torch.randn(6, 8), torch.randint(2, (6, 8))
    expected = F.binary_cross_entropy(torch.sigmoid(a), b.float(), reduction="none").mean(dim=1)
    torch.testing.assert_close(multilabel("faces", 8).loss(a, b), expected)

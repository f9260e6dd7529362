"""What a federated multi-task run is compared with: single tasks, clients alone, and one pool of all examples.

- single-task: one federated run for every task, with the clients that have labels of it.
- local: every client trains alone; each of its models is evaluated on the common test examples, and the scores are
  averaged over clients. A task that a client has no label of stays untrained there, as it would in practice.
- pooled: one model is trained on the examples of all clients.

A baseline consists of parts: one run for every task, for every client, or one run. Single tasks and clients alone are
runs on the same problem, with the weight on one task or with one client, so engines stack them like other runs.

All parts train with the setting's minibatches and T·K gradient steps, as many as a client makes that takes part in
every round, and choose their models as the setting does. Their learning rates are those of the setting's
`[baselines.NAME]`, else those of `uniform`. A task that is alone weighs 1 instead of 1/m, so with SGD its rate is
divided by m where none is given.
"""

from fedhv.runs.baselines.in_memory import Baseline, run_baseline

__all__ = ["Baseline", "run_baseline"]

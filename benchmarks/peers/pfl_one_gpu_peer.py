"""pfl-research with several processes on one GPU, as its guide to distributed simulations describes.

torchrun --nproc-per-node 5 pfl_one_gpu_peer.py WORKLOAD cuda

pfl-research 0.6.0 gives process n the n-th GPU and connects the processes by NCCL, which does not allow two of them on
one GPU. So, while it is imported, the choice of a GPU has no effect, and Gloo takes NCCL's place.
"""

from __future__ import annotations

from unittest.mock import patch

import torch

connect = torch.distributed.init_process_group

if __name__ == "__main__":
    with (
        patch("torch.cuda.set_device", lambda rank: None),
        patch("torch.distributed.init_process_group", lambda backend: connect("gloo")),
    ):
        from pfl_peer import main
    main()

"""The requests of this package, one file each."""

from __future__ import annotations

from fedhv.protocol.requests.continue_training import ContinueTraining
from fedhv.protocol.requests.evaluate import Evaluate, EvaluateReplies, EvaluateReply
from fedhv.protocol.requests.gram_terms import GramTermReplies, GramTerms, GramTermsReply
from fedhv.protocol.requests.task_gradients import TaskGradientReplies, TaskGradients, TaskGradientsReply
from fedhv.protocol.requests.task_updates import TaskUpdateReplies, TaskUpdates, TaskUpdatesReply
from fedhv.protocol.requests.train import Train, TrainReplies, TrainReply

__all__ = [
    "ContinueTraining",
    "Evaluate",
    "EvaluateReplies",
    "EvaluateReply",
    "GramTermReplies",
    "GramTerms",
    "GramTermsReply",
    "TaskGradientReplies",
    "TaskGradients",
    "TaskGradientsReply",
    "TaskUpdateReplies",
    "TaskUpdates",
    "TaskUpdatesReply",
    "Train",
    "TrainReplies",
    "TrainReply",
]

"""Preparation of a run: its existing folder, and the reference that its method needs."""

from __future__ import annotations

from dataclasses import replace

from fedhv.methods.base import reference_of, takes_reference
from fedhv.protocol.scales import loss_units
from fedhv.runs.calibration import find_reference
from fedhv.runs.checkpoint import has_checkpoint
from fedhv.runs.folder import lacks_fingerprint
from fedhv.runs.job import Job
from fedhv.runs.record import MODEL, REFERENCE, Run, read_finished, read_summary
from fedhv.runs.reference import Reference, read_reference
from fedhv.simulation.observer import Observer
from fedhv.support.errors import InputError


def prepare(job: Job, observer: Observer, data: str | None = None) -> Job | Run:
    """The job with its reference found, or its result if it is already finished."""
    path = job.folder / REFERENCE if job.folder else None
    given = job.reference.values if job.reference is not None else reference_of(job.method)
    if given is not None and path is not None and path.exists() and read_reference(path).values != given:
        raise InputError(f"{path} holds another reference than the given one. Choose another --out.")
    if job.folder is not None and lacks_fingerprint(job.folder):
        observer.message(
            f"The run in {job.folder} was begun by a version without fingerprints: whether it belongs to this problem "
            "cannot be checked."
        )
    if job.folder is not None and read_summary(job.folder) is not None:
        if (job.folder / MODEL).exists() or not has_checkpoint(job.folder):
            observer.message(f"The run in {job.folder} is already finished.")
            return read_finished(job.folder)
        observer.message(f"The model of the finished run in {job.folder} is missing: it is written again.")
    if not takes_reference(job.method):
        return replace(job, reference=None)
    tasks = tuple(task.name for task in job.problem.tasks)
    if path is not None and path.exists():
        reference = read_reference(path)
    elif job.reference is not None:
        reference = job.reference
    elif given is not None:
        reference = Reference(given, tasks)
    else:
        observer.message("No reference was given.")
        place = job.folder / "calibration" if job.folder else None
        reference = find_reference(
            job.setting, job.method, job.problem, choice=job.choice, data=data, folder=place, observer=observer
        )
    reference.check(tasks)
    reference.check_units(loss_units(job.problem))
    if path is not None:
        reference.write(path)
    return job.with_reference(reference)

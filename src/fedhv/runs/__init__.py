"""Runs on disk: settings, calibration, references, jobs, studies, histories, checkpoints, summaries."""

"""Runs on disk: settings, references, jobs, studies and their files."""

"""A machine's sensors tell whether it will fail and how many hours it has left: one model, two tasks."""

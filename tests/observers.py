"""An observer for tests: it keeps what it is told, and interrupts a run where it is asked to."""

from fedhv.simulation.observer import Observer


class Watch(Observer):
    """Keeps what it is told; raises after a round, of the runs whose label has this in it."""

    def __init__(self, after=None, label="", error=KeyboardInterrupt):
        self.after, self.of, self.error = after, label, error
        self.label, self.started, self.said = "", [], []

    def message(self, text):
        self.said.append(text)

    def start(self, label, rounds, done=0):
        self.label = label
        self.started.append((label, done))

    def round(self, round):
        if round.number == self.after and self.of in self.label:
            raise self.error

"""The problem: tasks, examples, clients, partition, the model as one flat vector, random draws."""

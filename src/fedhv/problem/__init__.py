"""What is learnt and from whose examples: tasks, clients, the model as one flat vector."""

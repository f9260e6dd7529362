"""From a machine's sensors one model predicts two tasks: whether it will fail, and its remaining hours."""

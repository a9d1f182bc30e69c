"""What is applied to a cluster, and the generator of its definition."""

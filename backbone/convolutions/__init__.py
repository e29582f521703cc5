"""Convolutions that train fast on a CPU: Winograd products, depthwise gradients."""

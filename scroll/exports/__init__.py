"""A learner for other programs: tensors in a file, ONNX graphs."""

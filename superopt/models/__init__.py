"""ONNX models as files and as graphs: read, written, converted, and what can be known of them without running them."""

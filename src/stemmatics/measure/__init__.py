"""One file a question: which facts it needs, and the estimates that it makes of them."""

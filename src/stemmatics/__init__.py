"""stemmatics: what did training change in a language model, and how sure can one be?"""

__version__ = "0.1.0"

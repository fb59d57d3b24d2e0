"""Training stages on TRL and PEFT."""

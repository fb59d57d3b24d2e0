"""The declaration of a study and the words that every room shares. Imports nothing of ours."""

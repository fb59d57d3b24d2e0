"""The declaration of a study and the types that all packages share. Imports no other package."""

"""The model host: loads a model safely and speaks the OpenAI API to one sandbox."""

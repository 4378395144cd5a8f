"""Teachers: synthetic teachers, task teachers and custom ones."""

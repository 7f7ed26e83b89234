"""The line of the user's program that built each step of a task, and the seconds of the step."""

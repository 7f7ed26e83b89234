"""The pictures of activities: where the time of workers went."""

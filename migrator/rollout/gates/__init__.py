"""What has to be well before and after a step: the gates, for whom they wait, and what is excused."""

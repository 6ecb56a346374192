"""What has to be well before and after a step: the questions, for whom is waited, and what is excused."""

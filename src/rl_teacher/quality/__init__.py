"""How good labels are: agreement, reliability, and what each labeler does."""

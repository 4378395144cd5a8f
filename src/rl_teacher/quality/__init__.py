"""Label quality: agreement, reliability, and statistics of each labeler."""

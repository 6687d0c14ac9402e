"""What those who embed a participant, or write hooks, need for their own tests."""

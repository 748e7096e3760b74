# The spec was reviewed.
move spec_review 'it is complete' &&
	ocipd task review "$task" --verdict approved --summary 'it can be tested' --token-file checker.token &&
	move execution_ready 'it is approved'

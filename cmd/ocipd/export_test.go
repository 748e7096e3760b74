package main

// AsProgram is [asProgram] for the tests outside this package.
const AsProgram = asProgram

"""Parts of the test bed that several rooms share: conda channels, interpreters and packages, all real."""

package local_test

const roleVar = "AGENTENV_TEST_ROLE"

func play(role string) int { return 2 }

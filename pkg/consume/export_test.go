package consume

// BeforeJoin lets a test act when a consumer has come to the end of its store and has not opened the ring yet.
func BeforeJoin(config Config, act func()) Config {
	config.beforeJoin = act
	return config
}

"""The commands of the command line: each parses, calls, prints. What they do, `import agentloop` can do too."""

import type { Command } from "commander"
import type { Commands } from "../command.ts"
import { skillText } from "../skill.ts"

/** `skill`: instructions for coding agents. */
export function addSkillCommand(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "skill",
    summary: "Print a skill: how a coding agent runs work on Berth.",
    more: "It needs no sign-in. The format is that of SKILL.md, which coding agents read.",
    examples: [["berth skill > .claude/skills/berth/SKILL.md", "for agents that read this folder"]],
    run: (call) => call.terminal.write(skillText(program)).then(() => 0),
  })
}

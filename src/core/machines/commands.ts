import { defined } from "../apis/defined.ts"

/** Folder of the agent on the owner's host, and in its container under the same path. */
const DATA_DIR = "/var/lib/berth/machine"

/** Folder of the program and the authorities on a host without the container. */
const PROGRAM_DIR = "/opt/berth"

/** Time that an agent has to end its run and to clean up, seconds. */
const STOP_SECONDS = 120

/** Exit code of a host that Berth rejects. A restart would not help it: systemd starts it no more, nor does the engine. */
export const REFUSED_EXIT_CODE = 3

/** Name of the agent's container on a host. */
const CONTAINER = "berth-machine"

/** Folder of the agent's program in its image. */
const IMAGE_FOLDER = "/berth"

/** Commands for a shell of a host, by which it becomes a machine. Only one of them is for a host. */
export interface JoinCommands {
  /** Runs the agent in the host's Docker engine. */
  docker?: string
  /** Runs it by systemd and Node.js. */
  systemd?: string
  /** Runs it in the foreground, from the source of an installation for development. */
  source?: string
  /** Says which commands are missing, and why. */
  note?: string
}

/** Facts for the commands of a host. */
export interface JoinOptions {
  /** URL at which hosts reach Berth. */
  gatewayUrl: string
  /** PEM of the authorities to trust in addition to the public ones. */
  gatewayCa?: string
  /** Join token. */
  token: string
  /** Berth's image with the agent. */
  image: string
}

/**
 * Returns the commands that make a host a machine, for a person to paste into a shell of the host. `docker` runs the agent
 * in a container of the engine that also runs the jobs. `systemd` runs it by Node.js: with the program of the image, or with
 * that of the present folder if it has `agent.mjs` and `package.json`. Each replaces the agent of an earlier command. Pure.
 */
export function joinCommands(options: JoinOptions): Required<Pick<JoinCommands, "docker" | "systemd">> {
  return { docker: dockerCommand(options), systemd: systemdCommand(options) }
}

/**
 * Returns the function that makes the commands for a join token. If the installation lacks a fact, it makes a note for its
 * administrator. Pure.
 */
export function joinCommandsOf(facts: { [Fact in keyof Omit<JoinOptions, "token">]?: string | undefined }) {
  const { gatewayUrl, gatewayCa, image } = facts
  return (token: string): JoinCommands => {
    if (gatewayUrl !== undefined && image !== undefined)
      return joinCommands({ gatewayUrl, image, token, ...defined({ gatewayCa }) })
    const missing = [
      ...(gatewayUrl === undefined ? ["--gateway-url (BERTH_GATEWAY_URL)"] : []),
      ...(image === undefined ? ["--agent-image (BERTH_AGENT_IMAGE)"] : []),
    ]
    const note = `This installation has no command for hosts: its façade lacks ${missing.join(" and ")}. Ask its administrator.`
    return { note }
  }
}

function dockerCommand({ gatewayUrl, gatewayCa, token, image }: JoinOptions): string {
  const ca = `${DATA_DIR}/gateway-ca.pem`
  const words = [
    ...[`sudo docker run --detach --name ${CONTAINER} --restart always`, `--stop-timeout ${STOP_SECONDS}`],
    // Root owns the engine's socket.
    ...["--user 0", "--network host"],
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    // Sockets of volume drivers, which the engine and the agent use.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `--volume ${DATA_DIR}:${DATA_DIR}`,
    `--env BERTH_JOIN_TOKEN=${shellWord(token)}`,
    shellWord(image),
    `host --gateway ${shellWord(gatewayUrl)} --data-dir ${DATA_DIR}`,
    ...(gatewayCa === undefined ? [] : [`--gateway-ca ${ca}`]),
  ]
  return script([
    ...(gatewayCa === undefined ? [] : [fileCommand(ca, gatewayCa, 0o600)]),
    // A new token comes on a host with the container of the former one, too.
    `{ sudo docker rm --force ${CONTAINER} >/dev/null 2>&1 || true; }`,
    words.join(" \\\n  "),
  ])
}

function systemdCommand({ gatewayUrl, gatewayCa, token, image }: JoinOptions): string {
  const ca = `${PROGRAM_DIR}/gateway-ca.pem`
  const start = [
    `/usr/bin/env node ${PROGRAM_DIR}/agent.mjs host`,
    `--gateway ${unitWord(gatewayUrl)} --data-dir ${DATA_DIR}`,
    ...(gatewayCa === undefined ? [] : [`--gateway-ca ${ca}`]),
  ].join(" ")
  const unit = `[Unit]
Description=Berth's agent of this machine
Wants=network-online.target
After=network-online.target docker.service
StartLimitIntervalSec=0
[Service]
EnvironmentFile=-${PROGRAM_DIR}/join.env
ExecStart=${start}
Restart=always
RestartSec=5
RestartPreventExitStatus=${REFUSED_EXIT_CODE}
TimeoutStopSec=${STOP_SECONDS}
KillMode=mixed
[Install]
WantedBy=multi-user.target
`
  return script([
    `sudo install -d -m 0755 ${PROGRAM_DIR}`,
    programCommand(image),
    ...(gatewayCa === undefined ? [] : [fileCommand(ca, gatewayCa, 0o644)]),
    fileCommand(`${PROGRAM_DIR}/join.env`, `BERTH_JOIN_TOKEN=${shellWord(token)}\n`, 0o600),
    fileCommand("/etc/systemd/system/berth-machine.service", unit, 0o644),
    "sudo systemctl daemon-reload",
    "sudo systemctl enable berth-machine",
    "sudo systemctl restart berth-machine",
  ])
}

/** Returns a command that puts the agent's program into its folder. It reads its version from the file beside it. */
function programCommand(image: string): string {
  const steps = [
    `container=$(sudo docker create ${shellWord(image)})`,
    `sudo docker cp "$container:${IMAGE_FOLDER}/." ${PROGRAM_DIR}`,
    `sudo docker rm "$container" >/dev/null`,
  ]
  const isHere = "[ -f agent.mjs ] && [ -f package.json ]"
  const copy = `sudo install -m 0644 -t ${PROGRAM_DIR} agent.mjs package.json`
  return `if ${isHere}; then ${copy}; else\n  ${steps.join(" &&\n  ")}\nfi`
}

/** Returns commands of which each runs only after the success of the former one. */
function script(commands: readonly string[]): string {
  return `${commands.join(" &&\n")}\n`
}

/** Returns a command that writes a file, and its folder. */
function fileCommand(path: string, content: string, mode: number): string {
  const text = content.endsWith("\n") ? content : `${content}\n`
  const install = `sudo install -D -m 0${mode.toString(8)} /dev/stdin ${path}`
  return `printf %s ${shellWord(text)} | ${install}`
}

/** Returns a word for a POSIX shell that stands for exactly this text. Pure. */
export function shellWord(text: string): string {
  if (/^[\w%+,./:=@-]+$/.test(text)) return text
  return `'${text.replaceAll("'", `'\\''`)}'`
}

/** Returns a word for a command in a unit of systemd (man 5 systemd.service, "command lines"). */
function unitWord(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("%", "%%").replaceAll("$", "$$$$")}"`
}

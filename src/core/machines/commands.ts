/** Folder of the agent on the owner's host, and in its container under the same path. */
const DATA_DIR = "/var/lib/berth/machine"

/** Folder of the program and the authorities on a host without the container. */
const PROGRAM_DIR = "/opt/berth"

/** Time that an agent has to end its run and to clean up, seconds. */
const STOP_SECONDS = 120

/** Exit code of a host that Berth rejects. A restart would not help it. */
export const REFUSED_EXIT_CODE = 3

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
 * Returns the commands that make a host a machine, for a person to paste into a shell of the host: `docker` runs the agent in
 * a container of the engine that also runs the jobs. `systemd` runs it by Node.js, with the file `agent.mjs` in the present
 * folder. Only one of them is for a host. Pure.
 */
export function joinCommands(options: JoinOptions): { docker: string; systemd: string } {
  return { docker: dockerCommand(options), systemd: systemdCommand(options) }
}

function dockerCommand({ gatewayUrl, gatewayCa, token, image }: JoinOptions): string {
  const ca = `${DATA_DIR}/gateway-ca.pem`
  const words = [
    ...["sudo docker run --detach --name berth-machine --restart always", `--stop-timeout ${STOP_SECONDS}`],
    // Root owns the engine's socket.
    ...["--user 0", "--network host"],
    "--volume /var/run/docker.sock:/var/run/docker.sock",
    // Sockets of volume drivers, which the engine and the agent use.
    "--volume /run/docker/plugins:/run/docker/plugins",
    `--volume ${DATA_DIR}:${DATA_DIR}`,
    `--env BERTH_JOIN_TOKEN=${quoted(token)}`,
    quoted(image),
    `host --gateway ${quoted(gatewayUrl)} --data-dir ${DATA_DIR}`,
    ...(gatewayCa === undefined ? [] : [`--gateway-ca ${ca}`]),
  ]
  const run = `${words.join(" \\\n  ")}\n`
  return gatewayCa === undefined ? run : `${fileCommand(ca, gatewayCa, 0o600)}${run}`
}

function systemdCommand({ gatewayUrl, gatewayCa, token }: JoinOptions): string {
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
  return [
    `sudo install -D -m 0644 agent.mjs ${PROGRAM_DIR}/agent.mjs\n`,
    ...(gatewayCa === undefined ? [] : [fileCommand(ca, gatewayCa, 0o644)]),
    fileCommand(`${PROGRAM_DIR}/join.env`, `BERTH_JOIN_TOKEN=${quoted(token)}\n`, 0o600),
    fileCommand("/etc/systemd/system/berth-machine.service", unit, 0o644),
    "sudo systemctl daemon-reload\n",
    "sudo systemctl enable berth-machine\n",
    "sudo systemctl restart berth-machine\n",
  ].join("")
}

/** Returns a command that writes a file, and its folder. */
function fileCommand(path: string, content: string, mode: number): string {
  const text = content.endsWith("\n") ? content : `${content}\n`
  const install = `sudo install -D -m 0${mode.toString(8)} /dev/stdin ${path}`
  return `printf %s ${quoted(text)} | ${install}\n`
}

/** Returns a word for a POSIX shell that stands for exactly this text. */
function quoted(text: string): string {
  if (/^[\w%+,./:=@-]+$/.test(text)) return text
  return `'${text.replaceAll("'", `'\\''`)}'`
}

/** Returns a word for a command in a unit of systemd (man 5 systemd.service, "command lines"). */
function unitWord(text: string): string {
  return `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("%", "%%").replaceAll("$", "$$$$")}"`
}

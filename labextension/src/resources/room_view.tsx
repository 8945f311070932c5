/** View of the free space and the quotas of the user's directories. */
import type { TranslationBundle } from "@jupyterlab/translation";
import * as React from "react";

import { formatSize } from "../common/format";
import { filesShare, spaceShare, type IRoom, type IShare, type ISpace } from "./room";
import { NARROW, NUMBER, Table, WIDE } from "./table";

interface IProps {
  readonly trans: TranslationBundle;
  readonly space: ISpace;
}

function size(bytes: number | null): string {
  return bytes === null ? "" : formatSize(bytes);
}

/** Return what limits a directory: the disk, or a quota and its owner. */
function sourceText(trans: TranslationBundle, { tool, owner }: ISpace): string {
  if (owner === "") {
    return trans.__("disk, shared by all users");
  }
  return tool === "quota"
    ? trans.__("quota of %1", owner)
    : trans.__("%1 quota of %2", tool, owner);
}

/** Return the amounts that a narrow panel has below the name. */
function amountsText(trans: TranslationBundle, { used, limit, free }: ISpace): string {
  const [usedText, limitText] = [size(used), size(limit)];
  const both = usedText !== "" && limitText !== "";
  return [
    both ? trans.__("%1 of %2", usedText, limitText) : usedText || limitText,
    free === null ? "" : trans.__("%1 free", formatSize(free)),
  ]
    .filter((text) => text !== "")
    .join(", ");
}

function filesText(trans: TranslationBundle, { files, files_limit: limit }: ISpace): string {
  if (files === null) {
    return "";
  }
  const count = files.toLocaleString();
  return limit === null ? count : trans.__("%1 of %2", count, limit.toLocaleString());
}

function levelText(trans: TranslationBundle, { level }: IShare): string {
  return { free: "", little: trans.__("nearly full"), full: trans.__("full") }[level];
}

function Share({ trans, space }: IProps): React.ReactElement | null {
  const share = spaceShare(space);
  return share === null ? null : (
    <span className="jp-Slurm-share" data-level={share.level}>
      <span className="jp-Slurm-bar" aria-hidden="true">
        <span data-part="used" style={{ width: `${share.percent}%` }} />
      </span>
      <span>{`${share.percent} %`}</span>
      {share.level !== "free" && <strong>{levelText(trans, share)}</strong>}
    </span>
  );
}

function Row({ trans, space }: IProps): React.ReactElement {
  const files = filesShare(space);
  const much = files === null || files.level === "free" ? "" : levelText(trans, files);
  const count = filesText(trans, space);
  return (
    <tr>
      <th scope="row">
        {space.folder ?? space.file_system}
        <div className={NARROW}>
          <Share {...{ trans, space }} />
        </div>
        <div className="jp-Slurm-aside">{sourceText(trans, space)}</div>
        <div className={`jp-Slurm-aside ${NARROW}`}>{amountsText(trans, space)}</div>
        {much !== "" && <div className={NARROW}>{trans.__("Files: %1, %2", count, much)}</div>}
      </th>
      <td className={`${NUMBER} ${WIDE}`}>{size(space.used)}</td>
      <td className={`${NUMBER} ${WIDE}`}>{size(space.limit)}</td>
      <td className={`${NUMBER} ${WIDE}`}>{size(space.free)}</td>
      <td className={WIDE}>
        <Share {...{ trans, space }} />
      </td>
      <td className={`${NUMBER} ${WIDE}`}>
        {count}
        {much !== "" && <strong> {much}</strong>}
      </td>
    </tr>
  );
}

function Spaces({ trans, room }: { trans: TranslationBundle; room: IRoom }): React.ReactElement {
  const number = `${NUMBER} ${WIDE}`;
  const heads = [
    trans.__("Directory"),
    { text: trans.__("Used"), className: number },
    { text: trans.__("Limit"), className: number },
    { text: trans.__("Free"), className: number },
    { text: trans.__("Share used"), className: WIDE },
    { text: trans.__("Files"), className: number },
  ];
  return (
    <Table label={trans.__("Quotas and free space")} heads={heads}>
      {room.spaces.map((space, place) => (
        <Row key={place} {...{ trans, space }} />
      ))}
    </Table>
  );
}

/** Return the size of a directory of jupyter_slurm; empty where it is empty or unknown, or of a kind of a newer agent. */
function keptText(trans: TranslationBundle, { kind, folder, used }: IRoom["kept"][number]): string {
  if (!used) {
    return "";
  }
  return kind === "jobs"
    ? trans.__("Job directories in %1: %2", folder, formatSize(used))
    : kind === "images"
      ? trans.__("Container images in %1: %2", folder, formatSize(used))
      : "";
}

export function Room({
  trans,
  room,
}: {
  trans: TranslationBundle;
  room: IRoom;
}): React.ReactElement {
  const kept = room.kept.map((each) => keptText(trans, each)).filter((text) => text !== "");
  return (
    <>
      {room.spaces.length === 0 ? (
        <p>{trans.__("The login node shows no free space.")}</p>
      ) : (
        <Spaces {...{ trans, room }} />
      )}
      {room.reports.map(({ name, text }) => (
        <figure key={name}>
          <figcaption>{name}</figcaption>
          <pre tabIndex={0} aria-label={name} role="region">
            {text}
          </pre>
        </figure>
      ))}
      {kept.map((text) => (
        <p key={text} className="jp-Slurm-aside">
          {text}
        </p>
      ))}
    </>
  );
}

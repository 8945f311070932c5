/** Table of resources, with the heads of its columns. */
import * as React from "react";

/** The head of a column of numbers, or of one that only a wide panel has. */
export interface IHead {
  readonly text: string;
  readonly className: string;
}

/** Classes of cells: numbers are aligned at their end; a narrow panel has those of `WIDE` below the name of the row. */
export const [NUMBER, WIDE, NARROW] = ["jp-Slurm-number", "jp-Slurm-wide", "jp-Slurm-narrow"];

export function Table(props: {
  readonly label: string;
  readonly heads: readonly (string | IHead)[];
  readonly children: React.ReactNode;
}): React.ReactElement {
  const heads = props.heads.map((head) =>
    typeof head === "string" ? { text: head, className: undefined } : head,
  );
  return (
    <table aria-label={props.label}>
      <thead>
        <tr>
          {heads.map(({ text, className }) => (
            <th key={text} scope="col" className={className}>
              {text}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>{props.children}</tbody>
    </table>
  );
}
